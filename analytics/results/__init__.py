"""Results of jobs: tables, JSON, CSV, the report with its charts, exports, conditions, and the progress meanwhile."""
