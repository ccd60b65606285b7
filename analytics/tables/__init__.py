"""Tables of data directories and archives: which parts a query reads, and how they become record batches."""
