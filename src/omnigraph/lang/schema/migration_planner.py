"""Two schemas -> the migration plan between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace

from omnigraph.deferred_dataclass import dataclass
from omnigraph.lang.schema.annotations import default_json, names_of_kind
from omnigraph.lang.schema.catalog import (
    Annotation,
    Catalog,
    EdgeType,
    Interface,
    NodeType,
    Property,
    TypeKind,
    find_granularity,
)
from omnigraph.lang.schema.catalog_json import (
    Owner,
    Rule,
    cardinality_value,
    constraint_text,
    find_documentation,
    find_embedding,
    list_rules,
    other_annotations,
)
from omnigraph.lang.schema.identity import AcceptedSchema, Resolution, first_identities, resolve
from omnigraph.lang.schema.migration_steps import (
    ADD_REQUIRED,
    CHANGE_TYPE,
    AddConstraint,
    AddProperty,
    AddType,
    ChangeCardinality,
    ChangeDefault,
    ChangeLanguage,
    ChangeMerge,
    ChangeMetric,
    DropMode,
    DropProperty,
    DropType,
    ExtendEnum,
    MigrationPlan,
    MigrationStep,
    RenameProperty,
    RenameType,
    RequireProperty,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
    WidenProperty,
)
from omnigraph.lang.types import Scalar, ValueType

WIDER: dict[Scalar, tuple[Scalar, ...]] = {
    Scalar.I32: (Scalar.I64, Scalar.F64),
    Scalar.U32: (Scalar.U64, Scalar.I64, Scalar.F64),
    Scalar.F32: (Scalar.F64,),
}
"""The number types that have every number of another one."""


def is_wider_number(old: ValueType, new: ValueType) -> bool:
    """Whether a type, nullable or not, is another one, or a list of it, with wider numbers."""
    alike = replace(old, scalar=new.scalar, nullable=new.nullable) == new
    return alike and new.scalar in WIDER.get(old.scalar, ())


def added_values(old: ValueType, new: ValueType) -> tuple[str, ...]:
    """The values that an enum has beyond those of another one, all of which it must have."""
    before, after = set(old.enum_values), set(new.enum_values)
    return tuple(sorted(after - before)) if before and before < after else ()


def keeps_ids(old: ValueType) -> bool:
    """Whether a key property of this type makes the same ids once its numbers are wider.

    The shortest digits of a 32-bit float are not those of the same number with 64 bits.
    """
    return old.scalar is not Scalar.F32


_NEW_EDGE_TYPE = (
    "; ids of stored edges stay: declare another edge type, load the exported edges into it "
    "without their ids, and drop this one"
)
REFUSED = "is not supported in schema migration v1"
"""How every reason ends, except for advice."""


def plan_migration(
    accepted: AcceptedSchema, desired: Catalog, allow_data_loss: bool = False
) -> MigrationPlan:
    """The steps from the accepted schema to the desired one; raises `SchemaIdentityError` for a bad hint."""
    return plan_resolved(accepted, desired, resolve(accepted, desired), allow_data_loss)


def plan_files(old: Catalog, new: Catalog, allow_data_loss: bool = False) -> MigrationPlan:
    """The steps between two schema files, as if the old one had just been accepted."""
    return plan_migration(AcceptedSchema(old, first_identities(old)), new, allow_data_loss)


def plan_resolved(
    accepted: AcceptedSchema, desired: Catalog, resolution: Resolution, allow_data_loss: bool = False
) -> MigrationPlan:
    """The steps for a desired schema that is matched to the accepted one already."""
    planner = _Planner(accepted, desired, resolution, "hard" if allow_data_loss else "soft")
    planner.plan_group("interface", accepted.catalog.interfaces, desired.interfaces)
    planner.plan_group("node", accepted.catalog.nodes, desired.nodes)
    planner.plan_group("edge", accepted.catalog.edges, desired.edges)
    return MigrationPlan(tuple(planner.steps), resolution.ignored_hints)


@dataclass(slots=True)
class _Planner:
    accepted: AcceptedSchema
    desired: Catalog
    resolution: Resolution
    mode: DropMode
    steps: list[MigrationStep] = field(default_factory=list)

    def plan_group(self, kind: TypeKind, before: Mapping[str, Owner], after: Mapping[str, Owner]) -> None:
        kept = set()
        for name in sorted(after):
            old_name = self.resolution.type_origins.get((kind, name))
            if old_name is None:
                self.steps.append(AddType(kind, name))
                continue
            kept.add(old_name)
            _Comparison(self, kind, before[old_name], after[name]).compare_types()
        for name in sorted(set(before) - kept):
            if kind == "interface":
                self.refuse(f"interface:{name}", f"removing interface '{name}' {REFUSED}")
            else:
                self.steps.append(DropType(kind, name, self.mode))

    def refuse(self, entity: str, reason: str, code: str | None = None) -> None:
        self.steps.append(UnsupportedChange(entity, reason, code))


class _Comparison:
    """One type before and after."""

    def __init__(self, planner: _Planner, kind: TypeKind, old: Owner, new: Owner) -> None:
        self.planner = planner
        self.steps = planner.steps
        self.kind = kind
        self.old = old
        self.new = new
        self.name = new.name
        self.origins = {
            name: planner.resolution.property_origins.get((kind, new.name, name)) for name in new.properties
        }
        self.old_ids = {
            name: planner.accepted.known_identities.properties[kind, old.name, name]
            for name in old.properties
        }
        self.new_ids = {
            name: planner.resolution.identities.properties[kind, new.name, name] for name in new.properties
        }
        before, self.rules = list_rules(old, self.old_ids), list_rules(new, self.new_ids)
        self.removed, self.added = before.keys() - self.rules.keys(), self.rules.keys() - before.keys()

    def compare_types(self) -> None:
        self.plan_rename()
        if isinstance(self.old, NodeType) and isinstance(self.new, NodeType):
            self.compare_interfaces(self.old, self.new)
        if isinstance(self.old, EdgeType) and isinstance(self.new, EdgeType):
            self.compare_ends(self.old, self.new)
        if not isinstance(self.old, Interface) and not isinstance(self.new, Interface):
            self.compare_type_metadata(self.old.annotations, self.new.annotations)
        for name in sorted(self.new.properties):
            self.compare_property(self.new.properties[name])
        kept = set(self.origins.values())
        for name in sorted(self.old.properties):
            if name not in kept:
                self.steps.append(DropProperty(self.kind, self.name, name, self.planner.mode))
        self.compare_constraints()

    # --- the type itself -----------------------------------------------------------------------

    def refuse(self, change: str, advice: str = "") -> None:
        self.planner.refuse(f"{self.kind}:{self.name}", f"{change} {REFUSED}{advice}")

    def plan_rename(self) -> None:
        if self.old.name == self.name:
            return
        if self.kind == "interface":
            self.refuse("renaming interfaces")
        else:
            self.steps.append(RenameType(self.kind, self.old.name, self.name))

    def compare_interfaces(self, old: NodeType, new: NodeType) -> None:
        if set(old.implements) != set(new.implements):
            self.refuse(f"changing implemented interfaces on node '{self.name}'")

    def compare_ends(self, old: EdgeType, new: EdgeType) -> None:
        before = self.planner.accepted.known_identities.types
        after = self.planner.resolution.identities.types
        old_ends = (before["node", old.source], before["node", old.target])
        if old_ends != (after["node", new.source], after["node", new.target]):
            self.refuse(f"changing edge endpoints on '{self.name}'")
        if old.cardinality != new.cardinality:
            bounds = cardinality_value(old.cardinality), cardinality_value(new.cardinality)
            self.steps.append(ChangeCardinality(self.kind, self.name, *bounds))

    def compare_type_metadata(self, old: tuple[Annotation, ...], new: tuple[Annotation, ...]) -> None:
        if find_documentation(old) != find_documentation(new):
            self.steps.append(UpdateTypeMetadata(self.kind, self.name, find_documentation(new)))
        if find_granularity(old) != find_granularity(new):
            self.steps.append(ChangeMerge(self.kind, self.name, find_granularity(new)))
        if other_annotations(old, besides=("merge",)) != other_annotations(new, besides=("merge",)):
            self.refuse(f"changing annotations beyond @description/@instruction on {self.kind} '{self.name}'")

    # --- its properties ------------------------------------------------------------------------

    def compare_property(self, new: Property) -> None:
        origin = self.origins[new.name]
        if origin is None:
            self.plan_new_property(new)
            self.compare_marks(None, new)
            return
        old = self.old.properties[origin]
        if old.name != new.name:
            self.steps.append(RenameProperty(self.kind, self.name, old.name, new.name))
        self.property_type(old, new)
        if find_embedding(old, self.old_ids) != find_embedding(new, self.new_ids):
            self.refuse_property(
                new,
                "changing @embed source or model for '{}'",
                "; rebuild the graph to embed the text again",
            )
        self.compare_marks(old, new)
        if old.inherited != new.inherited:
            self.refuse_property(new, "changing declaration provenance for '{}'")
        if old.interfaces != new.interfaces:
            self.refuse_property(new, "changing interface-property satisfaction links for '{}'")
        self.compare_property_metadata(old, new)

    def refuse_property(
        self, found: Property, change: str, advice: str = "", code: str | None = None
    ) -> None:
        path = f"{self.name}.{found.name}"
        self.planner.refuse(f"{self.kind}:{path}", f"{change.format(path)} {REFUSED}{advice}", code)

    def plan_new_property(self, new: Property) -> None:
        if new.type.nullable or new.default is not None:
            self.steps.append(AddProperty(self.kind, self.name, new.name, new.type, default_json(new)))
        else:
            change = "adding required property '{}' requires a backfill and"
            self.refuse_property(new, change, code=ADD_REQUIRED)

    def property_type(self, old: Property, new: Property) -> None:
        if old.type == new.type:
            return
        tightened = old.type.nullable and not new.type.nullable
        fits_null = old.type.nullable == new.type.nullable or (tightened and new.default is not None)
        wider = self.find_widening(old, new)
        same = old.type.with_nullable() == new.type.with_nullable()
        if not fits_null or not (same or wider):
            self.refuse_property(new, "changing property type for '{}'", code=CHANGE_TYPE)
            return
        self.steps += [wider] if wider else []
        if tightened:
            self.steps.append(RequireProperty(self.kind, self.name, new.name, default_json(new)))

    def find_widening(self, old: Property, new: Property) -> ExtendEnum | WidenProperty | None:
        if added := added_values(old.type, new.type):
            return ExtendEnum(self.kind, self.name, new.name, added)
        in_key = not isinstance(self.new, Interface) and new.name in self.new.key
        if not is_wider_number(old.type, new.type) or (in_key and not keeps_ids(old.type)):
            return None
        types = (each.type.with_nullable(new.type.nullable) for each in (old, new))
        return WidenProperty(self.kind, self.name, new.name, *types)

    def compare_marks(self, old: Property | None, new: Property) -> None:
        """Constraints written on the property; those dealt with here are not reported for the type again."""
        lost = {rule for rule in self.removed if old and _is_mark(rule, old, self.old_ids)}
        if lost:
            self.refuse_property(new, "removing property constraints from '{}'")
            self.removed -= lost
        for rule in sorted(rule for rule in self.added if _is_mark(rule, new, self.new_ids)):
            if rule.name == "key":
                self.refuse_property(new, "adding a property-level @key constraint to '{}'")
                self.added -= {rule}

    def compare_property_metadata(self, old: Property, new: Property) -> None:
        required = old.type.nullable and not new.type.nullable
        if old.default != new.default and not required:
            self.steps.append(ChangeDefault(self.kind, self.name, new.name, default_json(new)))
        if find_documentation(old.annotations) != find_documentation(new.annotations):
            annotations = find_documentation(new.annotations)
            self.steps.append(UpdatePropertyMetadata(self.kind, self.name, new.name, annotations))
        if old.metric != new.metric:
            self.steps.append(ChangeMetric(self.kind, self.name, new.name, new.metric))
        if old.language != new.language:
            self.steps.append(ChangeLanguage(self.kind, self.name, new.name, new.language))
        kept = ("default", *names_of_kind(new.type))
        before, after = (other_annotations(it.annotations, besides=kept) for it in (old, new))
        if before != after:
            self.refuse_property(new, "changing annotations beyond @description/@instruction on '{}'")

    # --- its constraints -----------------------------------------------------------------------

    def compare_constraints(self) -> None:
        advice = _NEW_EDGE_TYPE if self.kind == "edge" else ""
        if self.removed:
            is_key = any(rule.name == "key" for rule in self.removed)
            self.refuse(f"removing constraints from '{self.name}'", advice if is_key else "")
        for rule in sorted(self.added):
            value = self.rules[rule]
            if rule.name == "key":
                self.refuse(f"adding constraint '{constraint_text(value)}' to '{self.name}'", advice)
            else:
                self.steps.append(AddConstraint(self.kind, self.name, value))


def _is_mark(rule: Rule, found: Property, ids: Mapping[str, int]) -> bool:
    return rule.name in found.marks and rule.columns == (str(ids[found.name]),)
