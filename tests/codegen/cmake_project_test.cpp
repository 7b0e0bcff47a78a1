// The build of a generated folder.
#include "codegen/cmake_project.h"

#include <doctest/doctest.h>

#include "codegen/stage_library.h"

using namespace graphpipe;

TEST_CASE("the headers that a project compiles ahead are those that its sources include, not what a name quotes") {
  codegen::Ranks ranks;
  std::vector<codegen::SourceFile> sources;
  for (size_t stage = 0; stage < 8; ++stage) {
    ranks.stages.push_back({ir::StageId(stage)});
    sources.push_back({codegen::stage_folder(ir::StageId(stage)) + "/forward.cpp",
                       "#include <ATen/ops/relu.h>\nconst char* name = \"#include <ATen/quoted.h>\";\n"});
  }
  const std::string text = codegen::write_cmake_project(ranks, sources, "// first\n").text;
  CHECK(text.find("<ATen/ops/relu.h>") != std::string::npos);
  CHECK(text.find("quoted") == std::string::npos);
}
