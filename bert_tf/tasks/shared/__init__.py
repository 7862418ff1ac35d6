"""What several tasks have in common."""
