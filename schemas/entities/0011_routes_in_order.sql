-- Routes are listed as they are tried: by what they stand below, and their places there. The next start fills that in.
UPDATE entity SET sort_text = NULL WHERE family = 'routes';
