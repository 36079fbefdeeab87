"""Tables: CSV, Parquet and frames of users, as candidate sets, features and labels."""
