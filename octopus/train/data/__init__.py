"""What users bring: rows to be rolled out, functions that reward, demonstrations to imitate."""
