"""Images of frameworks: built, pushed and recorded; and the program inside a build."""
