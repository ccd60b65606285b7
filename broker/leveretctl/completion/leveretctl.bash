# Completion of leveretctl for bash; loaded by: eval "$(leveretctl completion bash)"
_leveretctl() {
    local word=${COMP_WORDS[COMP_CWORD]} line=("${COMP_WORDS[@]:1:COMP_CWORD-1}") command= each
    # bash splits --option=value at the equals sign
    if [[ ${COMP_WORDS[COMP_CWORD]} == = ]]; then
        word="${COMP_WORDS[COMP_CWORD-1]}="
    elif [[ COMP_CWORD -gt 1 && ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
        word="${COMP_WORDS[COMP_CWORD-2]}=$word"
    fi
    for each in "${line[@]}"; do
        if [[ $each =~ ^[a-z_]+$ ]] && leveretctl help --list-commands | grep -qx -- "$each"; then
            command=$each
            break
        fi
    done
    if [[ -z $command && $word != -* ]]; then
        mapfile -t COMPREPLY < <(leveretctl autocomplete -- "$word" 2>/dev/null)
        return
    fi
    mapfile -t COMPREPLY < <(leveretctl autocomplete --for="$command" -- "${line[@]}" "$word" 2>/dev/null)
    if [[ $word == --*=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#--*=}")
    fi
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]]; then
        compopt -o nospace
    fi
}
complete -o default -F _leveretctl leveretctl
