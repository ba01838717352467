"""Boot documents: finds templates and renders them. Knows neither drivers nor the dispatcher, only variables."""
