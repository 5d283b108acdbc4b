"""The commands: each is the function of its file's name, and every file here is a command."""
