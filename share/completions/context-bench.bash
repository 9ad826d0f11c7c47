_context_bench_completion() {
    local IFS=$'
'
    COMPREPLY=( $( env COMP_WORDS="${COMP_WORDS[*]}" \
                   COMP_CWORD=$COMP_CWORD \
                   _CONTEXT_BENCH_COMPLETE=complete_bash $1 ) )
    return 0
}

complete -o default -F _context_bench_completion context-bench
