# Turns the file INPUT into the device library's array, in OUTPUT.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
file(WRITE ${OUTPUT}
  "#include \"DeviceLibrary.h\"\n\n"
  "const unsigned char mlir::shardq::kDeviceLibrary[] = {${bytes}};\n"
  "const size_t mlir::shardq::kDeviceLibrarySize = sizeof(kDeviceLibrary);\n")
