"""What people read: sentences, documents, charts and tables made of plans, diagnoses and results."""
