#pragma once
// What a profiling program times separately: the forward nodes, and the functions that their work runs in.

#include <map>
#include <utility>
#include <vector>

#include "codegen/source_file.h"
#include "ir/graph.h"

namespace graphpipe::codegen {

struct Ranks;

struct Mark {
  /// A forward node: the marked node itself, or the one that it serves.
  ir::NodeId node;
  /// The function that runs the step.
  ir::Phase phase = ir::Phase::kForward;
  /// How many times an item passes this mark.
  int passes = 0;
};

class MarkTable {
 public:
  /// Records one more place in a function of `phase` that ends a step of `node`; returns the mark's number.
  size_t add(ir::NodeId node, ir::Phase phase);
  const std::vector<Mark>& marks() const { return marks_; }

 private:
  std::vector<Mark> marks_;
  std::map<std::pair<ir::NodeId, ir::Phase>, size_t> number_of_;
};

inline constexpr const char* kProfileMain = "programs/profile_main.cpp";

/// The main function of the profiling program, over the first device's program.
SourceFile write_profile_main(const MarkTable& table, const Ranks& ranks, const std::string& first_line);

}  // namespace graphpipe::codegen
