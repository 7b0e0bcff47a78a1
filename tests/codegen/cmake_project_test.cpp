// The build of a generated folder.
#include "codegen/cmake_project.h"

#include <doctest/doctest.h>

#include <map>
#include <string>

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

TEST_CASE("the tables of many devices are compiled as one file, and only main functions name stages") {
  const ir::Program program{.actions = {{.op = ir::ActionOp::kForward, .range = {0, 4}}}};
  codegen::Ranks ranks;
  for (size_t rank = 0; rank < 3; ++rank) {
    ranks.programs.push_back(&program);
    ranks.stages.push_back({ir::StageId(rank), ir::StageId(5 - rank)});
  }
  std::map<std::string, std::string> files;
  for (size_t rank = 0; rank < 3; ++rank)
    for (const codegen::SourceFile& file : codegen::write_device_program(ranks, rank, Bytes(0), {"//\n", "//\n"}))
      files[file.path] = file.text;
  // An executable that links one of these tables links all: none may name a stage that the others do not have.
  for (const char* rank : {"0", "1", "2"}) {
    const std::string table = files.at(text("programs/device", rank, ".cpp"));
    CHECK(table.find("entry") == std::string::npos);
    CHECK(table.find(text("namespace tables_of_device", rank, " {")) != std::string::npos);
    CHECK(table.find("namespace {") == std::string::npos);
  }
  const std::string main = files.at("programs/device1_main.cpp");
  CHECK(main.find("{&pipeline::stage1::entry, &pipeline::stage4::entry}") != std::string::npos);
  CHECK(main.find("{&pipeline::device1, stages, 2}") != std::string::npos);
  const std::string build = codegen::write_cmake_project(ranks, {}, "// first\n").text;
  CHECK(build.find("programs/device2.cpp)\nset_target_properties(programs PROPERTIES UNITY_BUILD ON") !=
        std::string::npos);
}
