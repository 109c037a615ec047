"""Long tables from finished results, their printed forms and figures."""
