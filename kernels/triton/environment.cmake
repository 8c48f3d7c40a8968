# warpcall_find_triton(<python> <reason>): an interpreter with Triton, in a virtual environment that the
# build makes for itself; or why there is none, with an empty <python>. A build goes on without, unless
# WARPCALL_TRITON=ON.
set(WARPCALL_TRITON AUTO CACHE STRING
  "Compile the kernels in Triton's language: ON, OFF, or AUTO where the package can be had")

# Runs a step of the set-up: <reason> is empty when it went well.
function(warpcall_run_step what reason)
  execute_process(COMMAND ${ARGN} TIMEOUT 900 RESULT_VARIABLE result OUTPUT_VARIABLE output
    ERROR_VARIABLE output)
  if(result EQUAL 0)
    set(${reason} "" PARENT_SCOPE)
    return()
  endif()
  # Python and pip say last what went wrong; one that could not be started says nothing.
  string(STRIP "${result}\n${output}" output)
  string(REGEX REPLACE ".*\n" "" output "${output}")
  string(REPLACE ";" "," output "${output}")
  set(${reason} "${what} failed: ${output}" PARENT_SCOPE)
endfunction()

function(warpcall_find_triton python reason)
  set(${python} "" PARENT_SCOPE)
  if(NOT WARPCALL_TRITON)
    set(${reason} "it was built with WARPCALL_TRITON=${WARPCALL_TRITON}" PARENT_SCOPE)
    return()
  endif()
  # The distribution's first, which has NumPy for the tests.
  find_program(WARPCALL_TRITON_PYTHON python3 PATHS /usr/bin NO_DEFAULT_PATH)
  find_program(WARPCALL_TRITON_PYTHON python3)
  set(requirements ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/requirements.txt)
  set(environment ${CMAKE_CURRENT_BINARY_DIR}/environment)
  if(NOT WARPCALL_TRITON_PYTHON)
    set(failure "there was no python3 to compile them with")
  else()
    file(SHA256 ${requirements} wanted)
    set(installed "")
    if(EXISTS ${environment}/installed)
      file(READ ${environment}/installed installed)
    endif()
    set(failure "")
    if(NOT installed STREQUAL "${wanted} ${WARPCALL_TRITON_PYTHON}")
      message(STATUS "Triton: installing it into ${environment}")
      warpcall_run_step("python3 -m venv" failure
        ${WARPCALL_TRITON_PYTHON} -m venv --clear --system-site-packages ${environment})
      if(NOT failure)
        warpcall_run_step("pip install triton" failure ${environment}/bin/python -m pip install --quiet
          --disable-pip-version-check --no-input --retries 2 --require-hashes --only-binary :all: --no-deps
          --requirement ${requirements})
      endif()
      if(NOT failure)
        file(WRITE ${environment}/installed "${wanted} ${WARPCALL_TRITON_PYTHON}")
      endif()
    endif()
  endif()
  if(NOT failure)
    set(${python} ${environment}/bin/python PARENT_SCOPE)
  elseif(WARPCALL_TRITON STREQUAL "ON")
    message(FATAL_ERROR "Triton: ${failure}; build without: -DWARPCALL_TRITON=OFF")
  endif()
  set(${reason} "${failure}" PARENT_SCOPE)
endfunction()
