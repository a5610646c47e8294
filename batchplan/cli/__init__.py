"""The command line: parsing, rendering and exit statuses; everything else is library."""
