"""What commands print: tables, reports, pictures."""
