"""The command line: one file a command or family. Speaks to a dispatcher through `client`; decides nothing itself."""
