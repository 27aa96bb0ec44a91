/* Shorthands for lists of cases. */
#ifndef LS_BACKEND_SELFTEST_LIST_H
#define LS_BACKEND_SELFTEST_LIST_H

#include "backend/selftest/case.h"

#define IMAGE(samples, channels, height, width) .n = samples, .c = channels, .h = height, .w = width
#define BN .eps = 1e-5f, .momentum = 0.1f
#define KERNEL(h, w) .kernel_h = h, .kernel_w = w
#define STRIDE(h, w) .stride_h = h, .stride_w = w
#define PAD(t, l, b, r) .pad_t = t, .pad_l = l, .pad_b = b, .pad_r = r
#define WINDOW(k, s, p) KERNEL(k, k), STRIDE(s, s), PAD(p, p, p, p)

#endif
