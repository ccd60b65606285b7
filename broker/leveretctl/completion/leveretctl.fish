# Completion of leveretctl for fish: ~/.config/fish/completions/leveretctl.fish.
function __leveretctl_words
    set -l known (leveretctl help --list-commands)
    set -l command
    for each in (commandline -opc)[2..-1]
        if contains -- $each $known
            set command $each
            break
        end
    end
    set -l word (commandline -ct)
    if test -z "$command"; and not string match -q -- '-*' $word
        leveretctl autocomplete -- $word 2>/dev/null
    else
        leveretctl autocomplete --for="$command" -- (commandline -opc)[2..-1] $word 2>/dev/null
    end
end
complete -c leveretctl -f -a '(__leveretctl_words)'
