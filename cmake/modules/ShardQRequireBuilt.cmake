# shardq_require_built(target component): in front of the target's install rule.
# Installing what was not built ends in an error that says what to do, not in that
# of a missing file.
function(shardq_require_built target component)
  install(CODE "
    if(NOT EXISTS \"$<TARGET_FILE:${target}>\")
      message(FATAL_ERROR \"${target} is not built. Before it is installed: \"
                          \"cmake --build ${PROJECT_BINARY_DIR}\")
    endif()" COMPONENT ${component})
endfunction()
