"""The figures of `make bench`, one file a subject; each measure yields its figures as it takes them."""
