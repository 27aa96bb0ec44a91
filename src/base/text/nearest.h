/* "Did you mean ...?": finds the known word closest to a mistyped one. */
#ifndef LS_BASE_NEAREST_H
#define LS_BASE_NEAREST_H

/* Returns the word of `known` (n words) with the smallest edit distance to `word`, the first one of several. Case is
 * ignored, and - equals _. If `word` has at least three letters and is a prefix of a known word, the distance is 1. Returns
 * NULL if every distance exceeds about one edit in three letters. */
const char *ls_nearest_word(const char *word, const char *const *known, int n);

#endif
