# `ninja lint`: clang-format, clang-tidy and cppcheck over all C of ours (tests/lint/lint says how).
# Generated headers must be there before clang-tidy reads the files that include them.
add_custom_target(lint
  COMMAND ${PROJECT_SOURCE_DIR}/tests/lint/lint ${PROJECT_BINARY_DIR}
  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
  USES_TERMINAL VERBATIM)
add_dependencies(lint dps_proto)
