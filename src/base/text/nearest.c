#include "base/text/nearest.h"

#include <ctype.h>
#include <string.h>

#define LONGEST 64

static int min(int a, int b)
{
    return a < b ? a : b;
}

/* Edit distance: insertions, deletions, substitutions and swaps of adjacent letters. */
static int edit_distance(const char *a, int na, const char *b, int nb)
{
    int cost[LONGEST + 1][LONGEST + 1];
    for (int i = 0; i <= na; i++)
        cost[i][0] = i;
    for (int j = 0; j <= nb; j++)
        cost[0][j] = j;
    for (int i = 1; i <= na; i++)
        for (int j = 1; j <= nb; j++) {
            int change = cost[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            cost[i][j] = min(change, min(cost[i - 1][j], cost[i][j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                cost[i][j] = min(cost[i][j], cost[i - 2][j - 2] + 1);
        }
    return cost[na][nb];
}

/* Converts to lower case and _ to -. Returns the length, or -1 if the word is longer than LONGEST. */
static int fold(const char *word, char folded[LONGEST + 1])
{
    int n = 0;
    for (; word[n]; n++) {
        if (n == LONGEST)
            return -1;
        folded[n] = word[n] == '_' ? '-' : (char)tolower((unsigned char)word[n]);
    }
    folded[n] = 0;
    return n;
}

const char *ls_nearest_word(const char *word, const char *const *known, int n)
{
    char a[LONGEST + 1], b[LONGEST + 1];
    int na = fold(word, a);
    const char *best = NULL;
    int fewest = (na + 2) / 3 + 1;
    for (int i = 0; i < n && na > 0; i++) {
        int nb = fold(known[i], b);
        if (nb < 0)
            continue;
        int m = edit_distance(a, na, b, nb);
        if (na >= 3 && nb > na && strncmp(a, b, (size_t)na) == 0)
            m = 1;
        /* A distance equal to the length means that the words share no letter. */
        if (m < fewest && m < (na > nb ? na : nb)) {
            best = known[i];
            fewest = m;
        }
    }
    return best;
}
