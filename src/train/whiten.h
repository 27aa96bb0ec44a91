/* Filters that whiten images: the start of convolutions with `init: whiten EPS`. */
#ifndef LS_TRAIN_WHITEN_H
#define LS_TRAIN_WHITEN_H

#include "train/task.h"

/* The number of training images that the filters are computed from, the first ones of the data set. */
#define LS_WHITEN_IMAGES 5000

/* Writes the filters of every convolution with that start. They are the principal components of the patches of the first
 * training images, as evaluation sees these, the largest variance first. Each is divided by the square root of its variance
 * plus EPS. The second half of the filters is the first half, negated. The values do not depend on the number of threads.
 * LS_BAD_INPUT where such a convolution does not read the images themselves, or has more filters than twice the values of a
 * patch. */
enum ls_status ls_whiten(struct ls_engine *e, const struct ls_task *task);

/* Eigenvalues and eigenvectors of the symmetric n x n matrix a, which is overwritten, by Jacobi's method. values[i] falls
 * with i; vectors + i * n is the unit vector of values[i], whose entry of largest magnitude is positive. */
void ls_eigen_symmetric(int n, double *a, double *values, double *vectors);

#endif
