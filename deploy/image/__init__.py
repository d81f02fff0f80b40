"""What runs in the images: the program that starts a container, and the one that asks how it is."""
