"""Long tables from finished results, their renderings and figures."""
