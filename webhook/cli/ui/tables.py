"""The compatibility matrix as JSON: rows of CUDA runtimes with the reasons of each cell."""

from __future__ import annotations

from typing import Any

from rules import Language
from rules.cuda.tables import BUILT_IN
from rules.cuda.versions import CudaVersion
from rules.model.sharing import SharingPolicy
from rules.nodes.fleet import classes_of
from webhook.cli.matrix.matrix import (
    FACTS,
    LEVEL_LABELS,
    Table,
    cell_document,
    class_table,
    driver_table,
    gpu_table,
    labelled,
)
from webhook.cli.ui.page import Page, Question

# The highest CUDA version that the virtualization of GPU-Manager supports.
_BASELINE = CudaVersion(12, 4)


def matrix(page: Page, question: Question) -> dict[str, Any]:
    """Return the tables of the chosen nodes; without nodes, of all driver branches and GPUs.

    Raises SourceError if the text of the nodes is wrong.
    """
    virtual = question.sharing == "virtual"
    policy = SharingPolicy(virtual=virtual, baseline=_BASELINE if virtual else None)
    unlabelled = 0
    known = page.rules_of(question).rules.facts or BUILT_IN
    if page.has_nodes(question):
        inventory = page.inventory(question).with_facts(known)
        families = page.rules_of(question).rules.label_names
        classes = classes_of(inventory, inventory.everything, families)
        table = class_table(policy, classes, known)
        tables = [table] if table else []
        unlabelled = sum(
            node_class.members.bit_count() for node_class in classes if not labelled(node_class.capabilities)
        )
    else:
        tables = [driver_table(policy, known), gpu_table(known)]
    language = question.language
    legend = {
        level.name.lower(): {"mark": label.mark, "text": label.text.in_language(language)}
        for level, label in LEVEL_LABELS.items()
    }
    return {
        "tables": [_table(table, language) for table in tables],
        "legend": legend,
        "unlabelled": unlabelled,
    }


def _table(table: Table, language: Language) -> dict[str, Any]:
    return {
        "title": table.title.in_language(language),
        "facts": [
            {
                "name": FACTS[key].in_language(language),
                "values": [_shown(column.facts[key]) for column in table.columns],
            }
            for key in table.columns[0].facts
        ],
        "columns": [column.name(language) for column in table.columns],
        "about": [column.about.in_language(language) for column in table.columns],
        "rows": [
            {"cuda": str(cuda), "cells": [cell_document(cell, language) for cell in cells]}
            for cuda, cells in table.rows()
        ],
    }


def _shown(fact: str | int | None) -> str:
    return "-" if fact is None else str(fact)
