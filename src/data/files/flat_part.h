/* A part of an image folder without class folders: its images lie together, and a text file has their labels, as
 * ImageNet's val folder is distributed.
 *
 * A line of the file is `NAME LABEL`, in any order, or a label alone; these are of the images in the order of their names,
 * sorted by bytes. A tab ends the name, in a .csv file a comma, otherwise a space. What follows the label after another
 * tab, in a .csv file a comma or space, is not read. NAME may have folders before it, and may lack its extension.
 *
 * Labels are names of classes, or numbers. Numbers count the sorted classes, or the lines of synsets.txt or classes.txt
 * beside the part. They begin at 0 if one of them is 0, otherwise at 1. */
#ifndef LS_DATA_FORMATS_FLAT_PART_H
#define LS_DATA_FORMATS_FLAT_PART_H

#include "data/files/layout.h"

/* The names of files that number classes; ends with NULL. */
extern const char *const ls_class_lists[];

/* Tests whether the folder `name` in spec is such a part. Then sets layout->images to the folder of its images and
 * layout->labels to its label file: one in the folder whose name has annotation, label, truth, synset or solution in it, or
 * one beside it with the name of the part in its own (val.txt). Two such files are an error. */
enum ls_status ls_flat_part_find(struct ls_files *files, const char *spec, const char *name, struct ls_layout *layout,
                                 bool *is_flat);
/* Adds the images of such a part with their labels. The classes are files->class_names, sorted. */
enum ls_status ls_flat_part_add(struct ls_files *files, const struct ls_layout *layout, int64_t classes);

#endif
