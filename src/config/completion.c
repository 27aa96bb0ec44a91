/* The completion script for bash: a few lines of shell around words from the program's tables. */
#include "config/table.h"

#include <string.h>

static bool is_number(const struct ls_option *option)
{
    return option->type != LS_OPTION_TEXT && !ls_option_is_switch(option);
}

static const char data_commands[] =
#define X(name, ...) #name " "
#include "config/lists/data_commands.def"
    ;

static const char downloads[] =
#define SET(name, ...) name " "
#include "config/lists/downloads.def"
    ;

/* Offers folders that are runs or checkpoints, here and in runs/, and model files. If there are none, it offers any
 * folder. */
static const char runs[] = "_lockstep_runs() {\n"
                           "    local folder found=() others=()\n"
                           "    while IFS= read -r folder; do\n"
                           "        if [ -d \"$folder/checkpoints\" ] || [ -e \"$folder/state.json\" ]; then\n"
                           "            found+=(\"$folder\")\n"
                           "        else\n"
                           "            others+=(\"$folder\")\n"
                           "        fi\n"
                           "    done < <(compgen -d -- \"$1\"; [[ $1 == */* ]] || compgen -d -- \"runs/$1\")\n"
                           "    while IFS= read -r folder; do\n"
                           "        found+=(\"$folder\")\n"
                           "    done < <(compgen -f -X '!*.safetensors' -- \"$1\")\n"
                           "    if [ ${#found[@]} -gt 0 ]; then # whole, without a slash behind\n"
                           "        while IFS= read -r folder; do\n"
                           "            COMPREPLY+=(\"$folder\")\n"
                           "        done < <(printf '%q\\n' \"${found[@]}\")\n"
                           "    else\n"
                           "        COMPREPLY=(\"${others[@]}\")\n"
                           "        compopt -o filenames 2>/dev/null\n"
                           "    fi\n"
                           "}\n";

/* $1 is the word so far, $2 the words to offer, and $3 a pattern of file names, or -d for folders only. */
static const char names[] = "_lockstep_names() {\n"
                            "    local name\n"
                            "    while IFS= read -r name; do\n"
                            "        COMPREPLY+=(\"$name\")\n"
                            "    done < <(compgen -W \"$2\" -- \"$1\"; compgen -d -- \"$1\"\n"
                            "        [ \"$3\" = -d ] || compgen -f -X \"!$3\" -- \"$1\")\n"
                            "    if [[ ${#COMPREPLY[@]} = 1 && ${COMPREPLY[0]} == *: ]]; then\n"
                            "        compopt -o nospace 2>/dev/null\n"
                            "    else\n"
                            "        compopt -o filenames 2>/dev/null\n"
                            "    fi\n"
                            "}\n";

static void put_options(enum ls_command command, FILE *out)
{
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        bool on = option->type == LS_OPTION_SWITCH && strcmp(option->missing, "true") == 0;
        if (option->commands & command)
            fprintf(out, "--%s%s ", on ? "no-" : "", option->name);
    }
}

/* Writes the values that each option takes. */
static void put_values(const struct ls_completion *words, FILE *out)
{
    for (int i = 0; i < ls_option_count; i++) {
        const struct ls_option *option = &ls_option_table[i];
        if (option->choices)
            fprintf(out, "    --%s) words='%s' ;;\n", option->name, option->choices);
        else if (option->names == LS_NAMES_MODELS)
            fprintf(out, "    --%s) _lockstep_names \"$word\" '%s' '*.y*ml'; return ;;\n", option->name, words->models);
        else if (option->names == LS_NAMES_DATA)
            fprintf(out, "    --%s) _lockstep_names \"$word\" '%s' -d; return ;;\n", option->name, words->data);
        else if (option->names == LS_NAMES_RUNS)
            fprintf(out, "    --%s) _lockstep_runs \"$word\"; return ;;\n", option->name);
        else if (option->names == LS_NAMES_AUGMENT)
            fprintf(out,
                    "    --%s)\n"
                    "        [[ $word == *,* ]] && before=${word%%,*},\n"
                    "        COMPREPLY=($(compgen -P \"$before\" -W '%s' -- \"${word##*,}\"))\n"
                    "        compopt -o nospace 2>/dev/null\n"
                    "        return ;;\n",
                    option->name, words->augment);
        else if (is_number(option))
            fprintf(out, "    --%s) compopt +o default 2>/dev/null; return ;;\n", option->name);
        else if (option->type == LS_OPTION_TEXT && option->letter)
            fprintf(out, "    -%c | --%s) return ;;\n", option->letter, option->name);
        else if (option->type == LS_OPTION_TEXT)
            fprintf(out, "    --%s) return ;;\n", option->name);
    }
}

/* Writes "    train | bench | plan" for a shell case: the commands that take these words. */
static void put_commands(enum ls_command_words words, FILE *out)
{
    const char *between = "    ";
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        if (info->words == words) {
            fprintf(out, "%s%s", between, info->name);
            between = " | ";
        }
}

/* Writes the words that need no option. When COMPREPLY stays empty, bash offers files. */
static void put_arguments(const struct ls_completion *words, FILE *out)
{
    fprintf(out, "    case $command in\n");
    put_commands(LS_WORDS_CONFIG, out);
    fprintf(out, ") _lockstep_names \"$word\" '' '*.y*ml' ;;\n");
    put_commands(LS_WORDS_SWEEP, out);
    fprintf(out, ") _lockstep_names \"$word\" '' '*.y*ml' ;;\n");
    put_commands(LS_WORDS_RUN, out);
    fprintf(out, ") _lockstep_runs \"$word\" ;;\n");
    put_commands(LS_WORDS_RUNS, out);
    fprintf(out, ") _lockstep_runs \"$word\" ;;\n");
    put_commands(LS_WORDS_PROGRAM, out);
    fprintf(out, ") COMPREPLY=($(compgen -c -- \"$word\")) ;;\n");
    put_commands(LS_WORDS_REPORT, out);
    fprintf(out, ") _lockstep_names \"$word\" '' '*.json' ;;\n");
    put_commands(LS_WORDS_IMAGES, out);
    fprintf(out, ")\n"
                 "        for last in \"${COMP_WORDS[@]:2:COMP_CWORD-2}\"; do\n"
                 "            [ \"$last\" = --run ] || [ \"$last\" = --init ] || [[ $last == *.safetensors ]] ||\n"
                 "                [ -d \"$last/checkpoints\" ] || [ -e \"$last/state.json\" ] && return\n"
                 "        done\n"
                 "        _lockstep_runs \"$word\" ;;\n");
    put_commands(LS_WORDS_MODEL, out);
    fprintf(out,
            ")\n"
            "        if [ \"$last\" = show ]; then\n"
            "            _lockstep_names \"$word\" '%s' '*.y*ml'\n"
            "        else\n"
            "            COMPREPLY=($(compgen -W show -- \"$word\"))\n"
            "        fi ;;\n",
            words->models);
    put_commands(LS_WORDS_DATA, out);
    fprintf(out,
            ")\n"
            "        if [ $COMP_CWORD -gt 2 ] && [ \"${COMP_WORDS[2]}\" = fetch ]; then\n"
            "            COMPREPLY=($(compgen -W '%s' -- \"$word\"))\n"
            "            return\n"
            "        fi\n"
            "        _lockstep_names \"$word\" '%s' -d\n"
            "        [ $COMP_CWORD != 2 ] || COMPREPLY+=($(compgen -W '%s' -- \"$word\")) ;;\n    esac\n",
            downloads, words->data, data_commands);
}

void ls_options_completion(const struct ls_completion *words, FILE *out)
{
    fprintf(
        out,
        "# bash completion for lockstep, made by `lockstep help --completion`\n%s%s"
        "_lockstep() {\n"
        "    local word=${COMP_WORDS[COMP_CWORD]} last=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} words= before=\n"
        "    local at=$COMP_CWORD\n"
        "    COMPREPLY=()\n"
        "    [ \"$word\" = = ] && word=\n"
        "    [ \"$last\" = = ] && last=${COMP_WORDS[COMP_CWORD-2]}\n"
        "    while ((at > 2)) && [[ ${COMP_WORDS[at]} == : || ${COMP_WORDS[at-1]} == : ]]; do # bash cuts at colons\n"
        "        ((at--))\n"
        "    done\n"
        "    if [ $at != $COMP_CWORD ]; then\n"
        "        last=${COMP_WORDS[at-1]}\n"
        "        [ \"$last\" = = ] && last=${COMP_WORDS[at-2]}\n"
        "        [ \"$last\" = --augment ] || last=:\n"
        "    fi\n"
        "    case $last in\n",
        runs, names);
    fprintf(out, "    :) compopt +o default 2>/dev/null; return ;;\n");
    put_values(words, out);
    fprintf(out, "    esac\n    if [ \"$COMP_CWORD\" = 1 ]; then\n        words='");
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        fprintf(out, "%s ", info->name);
    fprintf(out, "help --help --version'\n    elif [ \"$command\" = help ]; then\n"
                 "        case $COMP_CWORD.$last in\n        2.*) words='");
    for (const struct ls_command_info *info = ls_commands; info->name; info++)
        fprintf(out, "%s ", info->name);
    fprintf(
        out,
        "%s--man --completion' ;;\n        3.ops) words='%s' ;;\n        3.data) words='%s' ;;\n        *) compopt +o default 2>/dev/null ;;\n"
        "        esac\n    elif [ \"$words\" ]; then\n        :\n    elif [[ $word == -* ]]; then\n"
        "        case $command in\n",
        words->topics, words->ops, data_commands);
    for (const struct ls_command_info *info = ls_commands; info->name; info++) {
        fprintf(out, "        %s) words='", info->name);
        put_options(info->command, out);
        fprintf(out, "--help' ;;\n");
    }
    fprintf(out, "        esac\n    fi\n    if [ \"$words\" ]; then\n"
                 "        COMPREPLY=($(compgen -W \"$words\" -- \"$word\"))\n"
                 "        return\n    fi\n");
    put_arguments(words, out);
    fprintf(out, "}\ncomplete -o default -F _lockstep lockstep\n");
}
