#compdef leveretctl
# Completion of leveretctl for zsh: a file _leveretctl in a directory of $fpath.
compdef _leveretctl leveretctl
_leveretctl() {
    local -a found line=("${(@)words[2,CURRENT-1]}")
    local command= each
    for each in $line; do
        if [[ $each =~ '^[a-z_]+$' ]] && leveretctl help --list-commands | grep -qx -- "$each"; then
            command=$each
            break
        fi
    done
    if [[ -z $command && $words[CURRENT] != -* ]]; then
        found=(${(f)"$(leveretctl autocomplete -- "$words[CURRENT]" 2>/dev/null)"})
    else
        found=(${(f)"$(leveretctl autocomplete --for="$command" -- "${(@)line}" "$words[CURRENT]" 2>/dev/null)"})
    fi
    if (( $#found )); then
        compadd -S '' -- ${(M)found:#*=}
        compadd -- ${found:#*=}
    else
        _files
    fi
}
if [[ $funcstack[1] == _leveretctl ]]; then
    _leveretctl "$@"
fi
