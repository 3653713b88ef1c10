import { autocompletion, closeBrackets, closeBracketsKeymap, completionKeymap } from "@codemirror/autocomplete";
import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { bracketMatching, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { lintGutter, lintKeymap } from "@codemirror/lint";
import { EditorState } from "@codemirror/state";
import {
  drawSelection,
  EditorView,
  highlightActiveLine,
  highlightActiveLineGutter,
  keymap,
  lineNumbers,
} from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";
import { useEffect, useRef } from "react";
import type { LintReport, Schema } from "../api";
import { completeFrom, gqLanguage, lintWith } from "./gq";

interface Props {
  text: string;
  schema: Schema | undefined;
  change: (text: string) => void;
  linted: (found: LintReport) => void;
  run: () => void;
}

/** An editor for queries. Tab leaves it, so that the keyboard is never caught. */
export function Editor({ text, schema, change, linted, run }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(undefined);
  const latest = useRef({ schema, change, linted, run });
  latest.current = { schema, change, linted, run };

  // biome-ignore lint: the editor is made once, and reads what is newest from the reference
  useEffect(() => {
    if (!box.current) return;
    const made = new EditorView({
      parent: box.current,
      state: EditorState.create({
        doc: text,
        extensions: [
          lineNumbers(),
          highlightActiveLine(),
          highlightActiveLineGutter(),
          history(),
          drawSelection(),
          indentOnInput(),
          bracketMatching(),
          closeBrackets(),
          gqLanguage,
          syntaxHighlighting(classHighlighter),
          autocompletion({ override: [completeFrom(() => latest.current.schema)] }),
          lintWith((found) => latest.current.linted(found)),
          lintGutter(),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": "Query" }),
          EditorView.updateListener.of((update) => {
            if (update.docChanged) latest.current.change(update.state.doc.toString());
          }),
          keymap.of([
            { key: "Mod-Enter", run: () => (latest.current.run(), true) },
            ...closeBracketsKeymap,
            ...defaultKeymap,
            ...historyKeymap,
            ...completionKeymap,
            ...lintKeymap,
          ]),
        ],
      }),
    });
    view.current = made;
    return () => made.destroy();
  }, []);

  useEffect(() => {
    const shown = view.current?.state.doc.toString();
    if (view.current && shown !== text) {
      view.current.dispatch({ changes: { from: 0, to: view.current.state.doc.length, insert: text } });
    }
  }, [text]);
  return <div className="editor" ref={box} />;
}
