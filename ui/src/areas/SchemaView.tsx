export default function SchemaView() { return null; }
