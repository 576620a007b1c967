"""Methods of the papers that the product is compared with and does not use."""
