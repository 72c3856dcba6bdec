"""What a node says of itself, and sees of others, again and again."""
