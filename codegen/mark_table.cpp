#include "codegen/mark_table.h"

#include "codegen/device_program.h"
#include "codegen/table_text.h"

namespace graphpipe::codegen {

size_t MarkTable::add(ir::NodeId node, ir::Phase phase) {
  const auto [place, is_new] = number_of_.emplace(std::pair(node, phase), marks_.size());
  if (is_new) marks_.push_back({.node = node, .phase = phase});
  ++marks_[place->second].passes;
  return place->second;
}

SourceFile write_profile_main(const MarkTable& table, const Ranks& ranks, const std::string& first_line) {
  std::vector<std::string> rows;
  for (const Mark& mark : table.marks())
    rows.push_back(text("{", mark.node, ", ", static_cast<int>(mark.phase), ", ", mark.passes, "}"));
  return {
      kProfileMain,
      text(first_line, "#include \"programs/device0.h\"\n#include \"runtime/profiling/profile.h\"\n\nnamespace {\n\n",
           "// forward node, function (forward, input gradient, weight gradient), passes\n",
           array_text("graphpipe::runtime::MarkRow", "kMarks", rows), "\n}  // namespace\n\n",
           "int main(int argc, char** argv) {\n", held_array("stages", ranks, 0),
           "  return graphpipe::runtime::run_profile(", linked_program("stages", ranks, 0), ", ",
           span_text("kMarks", rows.size()), ", argc, argv);\n}\n")};
}

}  // namespace graphpipe::codegen
