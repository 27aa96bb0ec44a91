#include "config/options.h"

#include <ctype.h>
#include <string.h>

#define LONGEST 48

static int least(int a, int b)
{
    return a < b ? a : b;
}

/* Letters to insert, delete, replace or swap with their neighbour; - and _ and case are the same. */
static int distance(const char *a, int na, const char *b, int nb)
{
    int row[3][LONGEST + 1];
    for (int j = 0; j <= nb; j++)
        row[0][j] = j;
    for (int i = 1; i <= na; i++) {
        int *now = row[i % 3], *above = row[(i + 2) % 3], *two_above = row[(i + 1) % 3];
        now[0] = i;
        for (int j = 1; j <= nb; j++) {
            now[j] = least(least(above[j], now[j - 1]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = least(now[j], two_above[j - 2] + 1);
        }
    }
    return row[na % 3][nb];
}

/* Lower case with - for _; the length, or -1 when it is longer than anything known. */
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

const char *ls_nearest(const char *word, const char *const *known, int n)
{
    char a[LONGEST + 1], b[LONGEST + 1];
    int na = fold(word, a);
    if (na <= 0)
        return NULL;
    const char *best = NULL;
    int best_distance = (na + 2) / 3 + 1; /* one slip in three letters is still meant as that word */
    for (int i = 0; i < n; i++) {
        int nb = fold(known[i], b);
        if (nb < 0)
            continue;
        int d = distance(a, na, b, nb);
        if (na >= 3 && nb > na && strncmp(a, b, (size_t)na) == 0)
            d = 1; /* cut short */
        if (d < best_distance && d < (na > nb ? na : nb)) {
            best = known[i];
            best_distance = d;
        }
    }
    return best;
}
