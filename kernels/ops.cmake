# Ops that bring all of theirs in a folder, wherever it lies: its CMakeLists.txt calls warpcall_op, and
# whoever wants the op in a program names the folder.

# warpcall_op(<name> <file>...)
# The folder holds the op <name>: its <name>.h declares <Name>Op() and <Name>CpuRows(), the files are
# compiled.
function(warpcall_op name)
  list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/ OUTPUT_VARIABLE files)
  set_property(GLOBAL PROPERTY WARPCALL_OP ${name} ${CMAKE_CURRENT_SOURCE_DIR} ${files})
endfunction()

# warpcall_add_ops(<target> [<folder>...])
# The target serves the folders' ops beside those of catalog_cpu.cc.
function(warpcall_add_ops target)
  set(includes "")
  set(lines "")
  foreach(folder IN LISTS ARGN)
    get_filename_component(place ${folder} NAME)
    add_subdirectory(${folder} ${CMAKE_CURRENT_BINARY_DIR}/${target}_ops/${place})
    get_property(files GLOBAL PROPERTY WARPCALL_OP)
    list(POP_FRONT files name place)
    target_sources(${target} PRIVATE ${files})
    set(function "")
    string(REPLACE "_" ";" words ${name})
    foreach(word IN LISTS words)
      string(SUBSTRING ${word} 0 1 first)
      string(SUBSTRING ${word} 1 -1 rest)
      string(TOUPPER ${first} first)
      string(APPEND function ${first}${rest})
    endforeach()
    string(APPEND includes "#include \"${place}/${name}.h\"\n")
    string(APPEND lines "  registry->Add(${function}Op(), ${function}CpuRows());\n")
  endforeach()
  set(catalog ${CMAKE_CURRENT_BINARY_DIR}/${target}_ops/catalog_folders.cc)
  configure_file(${PROJECT_SOURCE_DIR}/kernels/catalog_folders.cc.in ${catalog} @ONLY)
  target_sources(${target} PRIVATE ${catalog})
endfunction()
