/* liblockstep-infer: a trained model in your own C or C++ program.
 *
 *     struct lockstep_model *m = lockstep_model_open("runs/flowers-1", 0);
 *     struct lockstep_guess top[5];
 *     int n = m ? lockstep_model_classify(m, bytes, size, top, 5) : -1;      a JPEG, PNG ... in memory
 *     for (int i = 0; i < n; i++)
 *         printf("%s %.2f%%\n", top[i].name, 100 * top[i].probability);
 *     if (n < 0)
 *         fprintf(stderr, "%s\n", lockstep_model_error());
 *     lockstep_model_close(m);
 *
 * The results are those of `lockstep predict`: the same preprocessing, weights and names.
 *
 *   I1  Any thread may use a model. Calls on one model wait for each other; calls on different models run side by side.
 *   I2  Nothing is printed. lockstep_model_error returns the last failure of the calling thread.
 *   I3  A model must not be used after lockstep_model_close, nor its names. */
#ifndef LOCKSTEP_INFER_H
#define LOCKSTEP_INFER_H

#include <stddef.h>

#if defined(__GNUC__)
#define LOCKSTEP_INFER_API __attribute__((visibility("default")))
#else
#define LOCKSTEP_INFER_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

struct lockstep_model; /* opaque */

struct lockstep_guess {
    int index;          /* of the class, from 0 */
    double probability; /* softmax over all classes */
    const char *name;   /* UTF-8; "class 7" where the model has no names; belongs to the model */
};

/* Loads a model: the directory of a run (its newest checkpoint), a checkpoint folder, or a .safetensors file that Lockstep
 * wrote. threads: that compute; 0: all cores this process may use. Returns NULL on failure. */
LOCKSTEP_INFER_API struct lockstep_model *lockstep_model_open(const char *path, int threads);
/* NULL is valid. */
LOCKSTEP_INFER_API void lockstep_model_close(struct lockstep_model *m);

/* Classifies an encoded image: JPEG, PNG, PPM or BMP, and WebP or GIF if Lockstep was built with them. Writes the `top`
 * likeliest classes, fewer if there are fewer classes, the likeliest first, and returns their number; -1 on failure. */
LOCKSTEP_INFER_API int lockstep_model_classify(struct lockstep_model *m, const void *bytes, size_t size,
                                               struct lockstep_guess *guesses, int top);
/* The same for pixels: RGB, 8 bits, rows of `width` pixels that begin `stride` bytes apart; stride 0: 3 * width. */
LOCKSTEP_INFER_API int lockstep_model_classify_rgb(struct lockstep_model *m, const unsigned char *pixels, int height,
                                                   int width, size_t stride, struct lockstep_guess *guesses, int top);

LOCKSTEP_INFER_API int lockstep_model_classes(const struct lockstep_model *m);
/* The name of a class; NULL: there is no such class. */
LOCKSTEP_INFER_API const char *lockstep_model_class_name(const struct lockstep_model *m, int index);
/* The last failure of this thread in one line; "" if there was none. */
LOCKSTEP_INFER_API const char *lockstep_model_error(void);

#ifdef __cplusplus
}
#endif

#endif
