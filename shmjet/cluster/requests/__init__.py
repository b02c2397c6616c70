"""How requests of clients come in, go on to other members, and are answered; and who may ask for what."""
