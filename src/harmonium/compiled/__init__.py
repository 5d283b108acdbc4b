"""Compiled code for units with two values on a CPU (the extra ``fast``); ``serving`` says when it is used."""
