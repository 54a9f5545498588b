// The names that the probe protocol has for enumerated values, read and written alike. For probe_values*.cpp.
#pragma once

#include <array>

#include "recipe/body_reader.h"
#include "recipe/convert.h"

namespace deepinfer::recipe {

inline constexpr std::array kVersions{Choice<ModelVersion>{"v4", ModelVersion::v4}, Choice<ModelVersion>{"v4.1", ModelVersion::v4_1}};
inline constexpr std::array kToolChoices{Choice<ToolChoice>{"auto", ToolChoice::automatic}, Choice<ToolChoice>{"none", ToolChoice::none},
                                         Choice<ToolChoice>{"required", ToolChoice::required}};
inline constexpr std::array kEfforts{
    Choice<ReasoningEffort>{"low", ReasoningEffort::low}, Choice<ReasoningEffort>{"high", ReasoningEffort::high},
    Choice<ReasoningEffort>{"xhigh", ReasoningEffort::xhigh}, Choice<ReasoningEffort>{"max", ReasoningEffort::max}};
inline constexpr std::array kDetails{Choice<ImageDetail>{"low", ImageDetail::low}, Choice<ImageDetail>{"high", ImageDetail::high},
                                     Choice<ImageDetail>{"original", ImageDetail::original},
                                     Choice<ImageDetail>{"auto", ImageDetail::automatic}};
inline constexpr std::array kImageKinds{Choice<ImageKind>{"data_url", ImageKind::data_url}, Choice<ImageKind>{"url", ImageKind::url},
                                        Choice<ImageKind>{"bytes", ImageKind::bytes}};
inline constexpr std::array kStages{Choice<ThinkingStage>{"reasoning_start", ThinkingStage::reasoning_start},
                                    Choice<ThinkingStage>{"reasoning_continuation", ThinkingStage::reasoning_continuation},
                                    Choice<ThinkingStage>{"content_continuation", ThinkingStage::content_continuation}};
using ConstraintKind = OutputConstraint::Kind;
inline constexpr std::array kConstraints{Choice<ConstraintKind>{"json", ConstraintKind::json},
                                         Choice<ConstraintKind>{"regex", ConstraintKind::regex},
                                         Choice<ConstraintKind>{"tool_call", ConstraintKind::tool_call},
                                         Choice<ConstraintKind>{"tool_call_required", ConstraintKind::tool_call_required}};
inline constexpr std::array kMissingReasoning{Choice<MissingReasoning>{"fill_empty", MissingReasoning::fill_empty},
                                              Choice<MissingReasoning>{"reject", MissingReasoning::reject}};
inline constexpr std::array kWebSearch{Choice<WebSearch>{"drop", WebSearch::drop}, Choice<WebSearch>{"reject", WebSearch::reject}};

}  // namespace deepinfer::recipe
