/* "Did you mean ...?": the known word closest to a mistyped one. */
#ifndef LS_BASE_NEAREST_H
#define LS_BASE_NEAREST_H

/* The entry of `known` (n words) with the fewest typing mistakes between it and `word`, the first of equals. Case,
 * and - for _, are no mistakes; a word of three letters or more that begins a known one counts as one. NULL when
 * none is near enough to be meant: about one mistake in three letters. */
const char *ls_nearest_word(const char *word, const char *const *known, int n);

#endif
