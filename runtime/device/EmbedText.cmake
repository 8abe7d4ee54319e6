# Turns the text file INPUT into the C++ array NAME, declared in HEADER, in OUTPUT.
file(READ ${INPUT} text)
file(WRITE ${OUTPUT}
  "#include \"${HEADER}\"\n\nconst char ${NAME}[] = R\"text(${text})text\";\n")
