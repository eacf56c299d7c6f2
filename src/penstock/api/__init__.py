"""The operations of a broker, declared once for all that offer them."""
