"""The classes of Spark's plans that are neither functions nor reach outside rows, without their packages."""

from __future__ import annotations

_EXPRESSIONS_TEXT = """
Alias AttributeReference OuterReference Literal Cast SortOrder CaseWhen In InSubquery ListQuery Exists
ScalarSubquery LateralSubquery GetStructField GetArrayItem GetMapValue GetArrayStructFields LambdaFunction
NamedLambdaVariable WindowExpression WindowSpecDefinition SpecifiedWindowFrame UnspecifiedFrame$ CurrentRow$
UnboundedPreceding$ UnboundedFollowing$ AggregateExpression PivotFirst PipeExpression
LateralColumnAliasReference Cube Rollup GroupingSets GroupingAnalytics$ NamedArgumentExpression
SemiStructuredExtract ResolvedCollation UnresolvedCollation Collate With CommonExpressionDef
CommonExpressionRef KnownNullable KnownNotNull TryEval BinaryPredicate BinaryPad NullIfResult
PromotePrecision CheckOverflow UpCast RaiseError LikeAll LikeAny NotLikeAll NotLikeAny Ceil RoundCeil Floor
RoundFloor Contains StartsWith EndsWith StringDecode StringInstr StringInstrWithOccurrence StringLPad
StringRPad Mask ToCharacter Explode PosExplode Inline GeneratorOuter UserDefinedGenerator$ CurrentTimeZone
CurrentTimestamp CurrentDate CurrentTime Now LocalTimestamp TimestampAdd TimestampDiff TimestampAddInterval
TimestampAddYMInterval DateAddInterval DateAddYMInterval DatetimeSub SubtractDates SubtractTimestamps
DivideInterval DivideDTInterval DivideYMInterval MultiplyInterval MultiplyDTInterval MultiplyYMInterval
ExtractANSIIntervalDays ExtractANSIIntervalHours ExtractANSIIntervalMinutes ExtractANSIIntervalSeconds
ExtractANSIIntervalMonths ExtractANSIIntervalYears ExtractIntervalDays ExtractIntervalHours
ExtractIntervalMinutes ExtractIntervalSeconds ExtractIntervalMonths ExtractIntervalYears Hour HoursOfTime
Minute MinutesOfTime Second SecondsOfTime SecondWithFraction SecondsOfTimeWithFraction MakeTimestamp
MakeTimestampFromDateTime MakeTimestampNTZ TryMakeTimestamp TryMakeTimestampFromDateTime GetTimestamp
ParseToTimestamp TimeBucket PreciseTimestampConversion CounterDiff CounterDiffWithStartTime
CountMinSketchAgg MaxBy MinBy MaxMinByK Mode PercentileCont PercentileDisc ParseJson VariantArrayAppend
VariantGet VariantInsert VariantSet VariantStripNulls
"""
EXPRESSIONS = frozenset(_EXPRESSIONS_TEXT.split())
"""Syntax, and what functions with several forms become."""

_PLANS_TEXT = """
Aggregate CTERelationDef CTERelationRef Distinct Except Expand Filter Generate GlobalLimit Intersect Join
LateralJoin LocalLimit LocalRelation Offset OneRowRelation PipeOperator Project Range RebalancePartitions
Repartition RepartitionByExpression ResolvedHint Sample Sort SubqueryAlias Tail Union UnionLoop UnionLoopRef
Window WithCTE
"""
PLANS = frozenset(_PLANS_TEXT.split())
"""Operators on rows; relations are `View`, which is checked by its name."""

_PARSED_EXPRESSIONS_TEXT = """
NamedParameter NamePlaceholder$ UnresolvedAlias UnresolvedAttribute UnresolvedExtractValue
UnresolvedNamedLambdaVariable UnresolvedOrdinal UnresolvedRegex UnresolvedStar UnresolvedStarExceptOrReplace
UnresolvedWindowExpression UnresolvedSubqueryColumnAliases
"""
PARSED_EXPRESSIONS = frozenset(_PARSED_EXPRESSIONS_TEXT.split())
_PARSED_PLANS_TEXT = """
Pivot Unpivot UnresolvedHaving UnresolvedHint UnresolvedInlineTable UnresolvedQualify
UnresolvedSubqueryColumnAliases UnresolvedTVFAliases UnresolvedWith WithWindowDefinition
"""
PARSED_PLANS = frozenset(_PARSED_PLANS_TEXT.split())
