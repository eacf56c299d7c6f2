"""What makes files of this project."""
