"""Reading agent programs' output: line splitting, lenient JSON, transcripts; a folder for each program."""
