"""What trained models and their trainings say beside gaps: margins of preferences, use of experts, embeddings, size."""
